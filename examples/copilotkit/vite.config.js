import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  // Another port would be another origin, which the gateway refuses.
  server: { port: Number(process.env.PORT ?? 5173), strictPort: true },
});
