"""What traced code mutates, and whether Dynamo writes bytecode that repeats each mutation (`SideEffects`)."""
