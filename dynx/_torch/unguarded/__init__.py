"""What traced code reads and no guard watches: recorded while Dynamo traces, and read again later."""
