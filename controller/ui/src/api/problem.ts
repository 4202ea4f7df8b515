import type { components } from "@/api/schema";

export type Problem = components["schemas"]["Problem"];

/** An answer of the service that is no success, or no answer at all. */
export class ProblemError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.message);
    this.name = "ProblemError";
    this.problem = problem;
  }

  /** The stable name of what went wrong. */
  get code(): string {
    return this.problem.error_code;
  }

  get status(): number {
    return this.problem.status;
  }
}

/** Return a thrown value as a problem; what is no problem document keeps its own words. */
export function problemOf(thrown: unknown): Problem {
  if (thrown instanceof ProblemError) return thrown.problem;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return describeProblem({
    title: "The page failed",
    code: "page_failed",
    status: 0,
    message: `${message}. Reload the page; if it fails again, the browser's console has the stack trace.`,
  });
}

/** The code of a request that got no answer. */
export const UNREACHABLE = "service_unreachable";

/**
 * Tell whether the same request may get another answer in a moment. What the service says, as of a
 * damaged file, is shown at once; the next look asks again anyway. Pure.
 */
export function mayPass(error: unknown): boolean {
  return error instanceof ProblemError && (error.status === 0 || error.status >= 502);
}

/** Return the problem of a request that got no answer. */
export function unreachable(path: string): Problem {
  return describeProblem({
    title: "The service does not answer",
    code: UNREACHABLE,
    status: 0,
    message: "No answer from the service. Is `cbp serve` running? The page retries by itself.",
    instance: path,
  });
}

/** Return the body of a refused request as a problem, whatever it is. */
export function problemFromBody(body: unknown, response: Response): Problem {
  if (isProblem(body)) return body;
  return describeProblem({
    title: "Answer without an explanation",
    code: `http_${response.status}`,
    status: response.status,
    message: `The service answered with status ${response.status} and no explanation.`,
    instance: new URL(response.url, "http://localhost").pathname,
  });
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "error_code" in body && "message" in body;
}

function describeProblem(known: {
  title: string;
  code: string;
  status: number;
  message: string;
  instance?: string;
}): Problem {
  return {
    type: `urn:cbp:error:${known.code}`,
    title: known.title,
    status: known.status,
    detail: known.message,
    instance: known.instance ?? "",
    error_code: known.code,
    message: known.message,
    details: {},
  };
}
