import { expect, test } from "vitest";

import { addressOf, byTag, curlOf, fieldsOf, isComplete, matching, operationsOf, typeText, type Document } from "@/screens/api/operations";

const DOCUMENT: Document = {
  info: { version: "1" },
  paths: {
    "/api/v1/runs": {
      get: {
        operationId: "runs_list",
        tags: ["runs"],
        description: "List runs,\nnewest first.\n\nPage by page.",
        parameters: [{ name: "limit", in: "query", schema: { anyOf: [{ type: "integer", minimum: 1, maximum: 500 }, { type: "null" }] } }],
        responses: { "200": { description: "OK", content: { "application/json": { schema: { $ref: "#/components/schemas/RunOut" } } } } },
        "x-cbp-scope": "viewer",
      },
    },
    "/api/v1/dataflows/{name}": {
      put: {
        operationId: "dataflows_change",
        tags: ["dataflows"],
        parameters: [{ name: "name", in: "path", required: true }],
        requestBody: { content: { "application/json": { examples: { one: { value: { name: "it's" } } } } } },
        responses: {},
        "x-cbp-scope": "admin",
      },
    },
  },
  components: { schemas: { RunOut: { required: ["id"], properties: { id: { type: "string", description: "Its id." }, tags: { type: "array", items: { type: "string" } } } } } },
};

const [list, change] = operationsOf(DOCUMENT) as [ReturnType<typeof operationsOf>[number], ReturnType<typeof operationsOf>[number]];

test("an operation is what the document says of it", () => {
  expect([list.method, list.path, list.tag, list.scope]).toEqual(["GET", "/api/v1/runs", "runs", "viewer"]);
  expect([list.summary, list.more]).toEqual(["List runs, newest first.", "Page by page."]);
  expect(typeText(list.parameters[0]?.schema)).toBe("integer from 1 to 500");
  expect(typeText(list.answers[0]?.schema)).toBe("RunOut");
  expect(byTag([list, change, list])).toEqual([["runs", [list, list]], ["dataflows", [change]]]);
});

test("the fields of an answer are those of its schema", () => {
  expect(fieldsOf(list.answers[0]?.schema, DOCUMENT)).toEqual([
    { name: "id", required: true, type: "string", description: "Its id." },
    { name: "tags", required: false, type: "list of string", description: "" },
  ]);
});

test("every word must be found, anywhere", () => {
  expect(matching([list, change], "newest RUNS")).toEqual([list]);
  expect(matching([list, change], "newest dataflows")).toEqual([]);
  expect(matching([list, change], " ")).toEqual([list, change]);
});

test("a request has what was filled in, encoded", () => {
  expect(addressOf(list, { limit: "5" })).toBe("/api/v1/runs?limit=5");
  expect(addressOf(list, { limit: "" })).toBe("/api/v1/runs");
  expect(addressOf(change, { name: "a/b" })).toBe("/api/v1/dataflows/a%2Fb");
  expect(addressOf(change, {})).toBe("/api/v1/dataflows/{name}");
  expect([isComplete(list, {}), isComplete(change, {}), isComplete(change, { name: "a" })]).toEqual([true, false, true]);
});

test("a shell's call has the token, and an example of the body", () => {
  expect(curlOf(list, "http://h", {})).toBe('curl -X GET "http://h/api/v1/runs" \\\n    -H "Authorization: Bearer $CBP_TOKEN"');
  expect(curlOf(change, "http://h", { name: "a" })).toContain(`-d '{"name":"it'\\''s"}'`);
});
