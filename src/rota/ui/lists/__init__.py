"""Pages that list what there is beside runs, and those of one of each: `listed` is how they are served."""
