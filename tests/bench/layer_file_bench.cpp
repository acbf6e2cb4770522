// One layer method on weights and second moments from files, timed: what gptq_vs_torch.py compares with.
//
//   layer_file_bench FOLDER FORMAT METHOD REPEATS [THREADS [damp=0.01] [ridge=0.01] [stop=0.001] [sweeps=12]
//   [effort=1] [scales=1]]
//
// For every NAME.weight.npy (float32 [out, in]) of FOLDER with NAME.gram.npy (float32 [in, in], E[x x^T]) and
// perhaps NAME.held.npy (the same of other samples), writes NAME.METHOD.npy: the quantized weight. METHOD is
// one of layer.h, or gptq_amax: GPTQ on the grid of the largest magnitude. Prints one
// JSON line a layer: the least seconds of the repeats, and losses relative to E ||W x||^2.
#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "datasets/npy.h"
#include "engine/base/error.h"
#include "quant/rounding/layer.h"
#include "tests/bench/grid_formats.h"

namespace {

using namespace pare;

Gram read_gram(const std::string& path) {
  const Tensor dense = read_npy(path);
  Gram gram;
  gram.n = dense.dims().at(0);
  gram.count = 1;
  gram.totals.resize(static_cast<std::size_t>(gram.n));
  for (std::int64_t i = 0; i < gram.n; ++i)
    for (std::int64_t j = i; j < gram.n; ++j)
      gram.sums.push_back(static_cast<double>(dense.as<float>()[i * gram.n + j]));
  return gram;
}

void set_option(quant::LayerOptions& options, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  const double value = std::stod(text.substr(equals + 1));
  if (key == "damp") options.damp = value;
  if (key == "ridge") options.rounding.ridge = value;
  if (key == "stop") options.rounding.stop = value;
  if (key == "sweeps") options.rounding.sweeps = static_cast<int>(value);
  if (key == "effort") options.rounding.effort = static_cast<int>(value);
  if (key == "scales") options.rounding.scales = value != 0;
}

int run(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: layer_file_bench FOLDER FORMAT METHOD REPEATS [THREADS [KEY=NUMBER...]]\n");
    return 2;
  }
  const std::string folder = argv[1], suffix = ".weight.npy";
  ThreadPool pool(argc > 5 ? std::stoi(argv[5]) : available_threads());
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.size() > suffix.size() && file.compare(file.size() - suffix.size(), suffix.size(), suffix) == 0)
      names.insert(file.substr(0, file.size() - suffix.size()));
  }
  double all = 0;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    const Tensor weight = read_npy(path + suffix);
    quant::WeightRows rows;
    rows.shape = quant::RowShape::whole(weight.dims().at(0), weight.dims().at(1));
    rows.values.assign(weight.as<float>(), weight.as<float>() + weight.size());
    const Gram gram = read_gram(path + ".gram.npy");
    Gram held;
    if (std::filesystem::exists(path + ".held.npy")) held = read_gram(path + ".held.npy");
    quant::LayerProblem problem;
    problem.name = name;
    problem.weight = &rows;
    problem.gram = &gram;
    problem.held_out = &held;
    problem.format = bench::grid_format(argv[2]);
    quant::LayerOptions options;
    for (int i = 6; i < argc; ++i) set_option(options, argv[i]);
    const bool amax = std::string(argv[3]) == "gptq_amax";
    options.method = amax ? "gptq" : argv[3];
    quant::LayerSolution s;
    double least = 1e9;
    for (int i = 0; i < std::stoi(argv[4]); ++i) {
      const auto start = std::chrono::steady_clock::now();
      const quant::Grid grid =
          amax ? quant::amax_grid(problem.format, rows.shape, rows.values.data(), pool) : quant::Grid();
      problem.grid = amax ? &grid : nullptr;
      s = quant::solve_layer(problem, options, pool);
      least =
          std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    all += least;
    quant::WeightRows image = rows;
    quant::decode(problem.format, rows.shape, s.grid, s.codes.data(), image.values.data(), pool);
    write_npy(path + "." + argv[3] + ".npy", Tensor::from(DType::kF32, weight.dims(), image.values).view());
    fmt::print("{{\"name\":\"{}\",\"method\":\"{}\",\"seconds\":{:.4f},\"loss\":{:.4e},\"held_out\":{}}}\n",
               name, s.method, least, s.relative_loss,
               held.empty() ? "null" : fmt::format("{:.4e}", s.held_out_loss));
    std::fflush(stdout);
  }
  fmt::print("{{\"layers\":{},\"seconds\":{:.3f}}}\n", names.size(), all);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const pare::Error& error) {
    fmt::print(stderr, "{} {} {}\n", error.what(), error.where(), error.hint());
    return 1;
  }
}
