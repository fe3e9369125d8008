"""The ways in: each translates what arrives into commands and questions, and takes no decision."""
