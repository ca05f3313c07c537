from nodrop.runs import Run as Run
from nodrop.runs import open_directory as open_directory

__version__: str
open = open_directory
