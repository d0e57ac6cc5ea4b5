"""Which method on this model and this data: methods compete on samples until time or data is over."""
