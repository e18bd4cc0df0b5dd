"""The adapter for Claude through the Claude Agent SDK, whose program runs the loop itself."""

from toolcrib.adapters.claude_agent.claude_adapter import ClaudeAgentAdapter as ClaudeAgentAdapter
