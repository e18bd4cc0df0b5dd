// A client on the TypeScript SDK 1.x, which knows the handshake era alone.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { carryOut, plan } from "./plan.mjs";

const client = new Client({ name: "typescript 1", version: "1" });
const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url))
  : new StdioClientTransport({ command: plan.command, args: plan.args, stderr: "ignore" });
// The client keeps to itself what was agreed on, and tells its transport alone.
let agreed;
const tell = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  agreed = version;
  tell?.(version);
};
await client.connect(transport);
await carryOut(client, agreed);
