// A client on the TypeScript SDK 2.x, in the era that the plan names: `legacy`, or `auto`, which finds the newer one.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { carryOut, plan } from "./plan.mjs";

const client = new Client({ name: "typescript 2", version: "1" }, { versionNegotiation: { mode: plan.mode } });
const transport = plan.url
  ? new StreamableHTTPClientTransport(new URL(plan.url))
  : new StdioClientTransport({ command: plan.command, args: plan.args, stderr: "ignore" });
await client.connect(transport);
await carryOut(client, client.getNegotiatedProtocolVersion());
