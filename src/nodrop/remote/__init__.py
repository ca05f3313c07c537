"""A receiver that is elsewhere: nodrop itself goes there, and this machine keeps the run."""
