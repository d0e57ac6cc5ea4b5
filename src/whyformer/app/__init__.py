"""The web page: each tab is a pure function from its inputs to a TabView; `wiring` connects them to Gradio."""
