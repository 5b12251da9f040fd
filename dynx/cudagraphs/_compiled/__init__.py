"""What torch.compile calls: `backend` plans each graph that AOTAutograd passes; `runner` finds or makes its recording."""
