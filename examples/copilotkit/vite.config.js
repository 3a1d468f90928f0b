import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  // threadway-client is linked from the clone, and must use the page's own packages.
  resolve: { dedupe: ["@ag-ui/client", "@copilotkit/react-core", "react"] },
  // Another port would be another origin, which the gateway refuses.
  server: { port: Number(process.env.PORT ?? 5173), strictPort: true },
});
