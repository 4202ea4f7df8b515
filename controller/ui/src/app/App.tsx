import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createBrowserRouter, RouterProvider } from "react-router";

import { LiveProvider } from "@/api/live";
import { mayPass } from "@/api/problem";
import { SessionProvider } from "@/api/session";
import { NotFound } from "@/app/NotFound";
import { Shell } from "@/app/Shell";
import { RouteFailure } from "@/app/RouteFailure";
import { screenElement } from "@/app/screenElement";
import { styleNonce } from "@/app/styleNonce";
import { theme, variables } from "@/app/theme";
import { SCREENS } from "@/screens/registry";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (failures, error) => failures < 2 && mayPass(error),
      staleTime: 1_000,
      gcTime: 60_000,
    },
  },
});

const router = createBrowserRouter(
  [
    {
      path: "/",
      element: <Shell />,
      errorElement: <RouteFailure />,
      children: [
        ...SCREENS.map((screen) => ({
          path: screen.path,
          element: screenElement(screen),
          errorElement: <RouteFailure />,
        })),
        { path: "*", element: <NotFound /> },
      ],
    },
  ],
  { basename: "/ui" },
);

/** The page. */
export function App() {
  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      getStyleNonce={styleNonce}
    >
      <QueryClientProvider client={queries}>
        <SessionProvider>
          <LiveProvider>
            <Notifications position="bottom-right" limit={4} />
            <RouterProvider router={router} />
          </LiveProvider>
        </SessionProvider>
      </QueryClientProvider>
    </MantineProvider>
  );
}
