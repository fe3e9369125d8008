"""Actions of builds: inputs are staged from a cache of content, a program is run, its outputs are kept.

Nothing of protobuf is imported before the first action: most workers never see one.
"""
