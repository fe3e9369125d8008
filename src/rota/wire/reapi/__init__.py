"""The Remote Execution API, version 2, as both ends speak it. Needs the extra `build`.

Names and numbers in the .proto files are facts of that API; the words are our own.
"""
