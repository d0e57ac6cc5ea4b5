"""The web page: each tab is a pure function from what was typed to a View, and `wiring` ties them to Gradio."""
