"""What is known of a tool's definition: how it changed, what is wrong with it, and its grammar."""
