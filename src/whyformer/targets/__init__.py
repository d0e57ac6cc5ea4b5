"""What is asked about: scores, and how a label's name becomes one."""
