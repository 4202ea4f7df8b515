import { expect, it } from "vitest";

import { mayPass, ProblemError, problemFromBody, unreachable } from "@/api/problem";

it("repeats what got no answer, and shows at once what the service said", () => {
  const answered = (status: number) => new ProblemError(problemFromBody({}, new Response(null, { status })));
  expect([401, 404, 409, 500].map((status) => mayPass(answered(status)))).toEqual([false, false, false, false]);
  expect(mayPass(answered(503))).toBe(true);
  expect(mayPass(new ProblemError(unreachable("/api/v1/runs")))).toBe(true);
  expect(mayPass(new TypeError("x is not a function"))).toBe(false);
});

it("does not take the words of HTTP for an explanation", () => {
  const answer = new Response(null, { status: 502, statusText: "Bad Gateway" });
  expect(problemFromBody({}, answer).title).not.toBe("Bad Gateway");
});
