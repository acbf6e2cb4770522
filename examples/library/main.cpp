// pare as a library: runs a model on generated inputs and prints the shape of each output.
#include <cstdio>

#include "engine/base/error.h"
#include "engine/run/session.h"
#include "graphsurgeon/generated_inputs.h"
#include "graphsurgeon/load.h"

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL\n", argv[0]), 2;
  pare::ThreadPool pool(2);
  pare::SessionOptions options;
  options.pool = &pool;
  pare::Session session(std::make_shared<const pare::Graph>(pare::load_model(argv[1])), options);
  pare::GeneratedSizes sizes;
  const pare::GeneratedRun run = pare::run_on_generated(session, sizes, /*seed=*/1);
  if (!run.done) return std::fprintf(stderr, "%s\n", run.why_not.c_str()), 1;
  for (const pare::Tensor& output : run.outputs) std::printf("%s\n", pare::to_string(output.dims()).c_str());
} catch (const pare::Error& error) {
  return std::fprintf(stderr, "error: %s\n", error.what()), static_cast<int>(error.code());
}
