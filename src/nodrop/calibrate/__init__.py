"""Known answers put into the user's own lab: does nodrop say here what is true?"""
