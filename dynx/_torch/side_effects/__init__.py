"""Record what traced code mutates, and whether Dynamo generates bytecode that repeats each mutation (`SideEffects`)."""
