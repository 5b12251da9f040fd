"""The backend of torch.compile: `backend` analyzes each graph that AOTAutograd makes; `runner` captures and replays it."""
