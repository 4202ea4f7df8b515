import { expect, test } from "vitest";

import { stackLines } from "@/screens/run/stackLines";

const ENGINE = { file: "/srv/engine.py", line: 7, function: "run", authors: false };
const AUTHOR = { file: "/srv/count.py", line: 12, function: "translate", authors: true };
const BELOW = { file: "/usr/lib/re.py", line: 3, function: "match", authors: false };

test("a stack begins with the author's code, and ends where the process is", () => {
  expect(stackLines({ pid: 1, calls: [ENGINE, AUTHOR, BELOW] })).toBe(
    "/srv/count.py:12 in translate\n/usr/lib/re.py:3 in match",
  );
});

test("without the author's code it is whole, and says whose it is", () => {
  expect(stackLines({ pid: 1, calls: [ENGINE] }).split("\n")).toEqual([
    "The process is in the service's own code, not in the code of the stage:",
    "/srv/engine.py:7 in run",
  ]);
  expect(stackLines({ pid: 1, calls: [] })).toContain("did not answer in time: it is starting or stopped");
});
