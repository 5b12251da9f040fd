"""What a replay would not do again, found while a function runs uncaptured or before: draws, reads of `.grad`, iterators."""
