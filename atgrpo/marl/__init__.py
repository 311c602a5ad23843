"""The classical side: small networks for robots in a simulator, with the same split of work as the side of LLMs."""
