"""What rules ask of records: facts about guards and graph breaks, what libraries offer, and shared advice and fixes."""
