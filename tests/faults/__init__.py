"""What happens when something around the service fails; and programs that load it, longer than a test may take."""
