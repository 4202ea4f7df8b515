import createClient from "openapi-fetch";

import { ProblemError, problemFromBody, unreachable } from "@/api/problem";
import type { paths } from "@/api/schema";
import { ask, authorization } from "@/api/transport";

/** Every route of the service, typed from its OpenAPI document. */
export const client = createClient<paths>({ baseUrl: "", fetch: ask });

client.use({
  onRequest({ request }) {
    for (const [name, value] of Object.entries(authorization())) request.headers.set(name, value);
    return request;
  },
  onError({ schemaPath }) {
    return new ProblemError(unreachable(schemaPath));
  },
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/**
 * Return the body of an answer.
 *
 * @throws ProblemError if the service refuses, fails or does not answer.
 */
export async function bodyOf<T>(request: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await request;
  if (response.ok) return data as T;
  throw new ProblemError(problemFromBody(error, response));
}
