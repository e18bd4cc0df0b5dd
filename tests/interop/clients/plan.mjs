// What every client here is asked to do. The plan is one JSON object on the command line, the report one on stdout.

export const plan = JSON.parse(process.argv[2]);

/**
 * Through the gateway: list, search, then expand and call every tool of the plan; without it, call them by their names.
 * Links in the answers are read.
 */
export async function carryOut(client, version) {
  const listed = await client.listTools();
  const report = { version, tools: listed.tools.map((tool) => tool.name), found: [], answers: [], linked: [] };
  const call = (name, args) => client.callTool({ name, arguments: args });
  if (plan.query !== undefined) {
    const page = await call("search_tools", { query: plan.query });
    report.found = page.structuredContent.results.map((pointer) => pointer.tool_id);
  }
  for (const [name, args] of plan.calls) {
    if (plan.query === undefined) {
      report.answers.push(await call(name, args));
      continue;
    }
    const expansion = await call("expand_tool", { tool_id: name });
    report.answers.push(await call("call_tool", { tool_id: expansion.structuredContent.handle, arguments: args }));
  }
  for (const block of report.answers.flatMap((answer) => answer.content)) {
    if (block.type === "resource_link") {
      report.linked.push(...(await client.readResource({ uri: block.uri })).contents);
    }
  }
  await client.close();
  console.log(JSON.stringify(report));
}
