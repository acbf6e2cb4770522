// Array conversion and quantization on one core, every instruction class, beside a plain copy of the same
// floats. Each result is compared with the scalar rows of the table (or the scalar class) before it is timed.
// Usage: numeric_bench [megabytes of float32 = 16] [part of a name]
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/isa.h"
#include "engine/numeric/convert.h"
#include "engine/numeric/quantize.h"
#include "engine/numeric/table.h"
#include "tests/bench/bench.h"

namespace {

using namespace pare;  // NOLINT: a program of its own

struct Options {
  std::int64_t n;
  std::string filter;
};

bool wanted(const Options& options, const std::string& what) {
  return what.find(options.filter) != std::string::npos;
}

bool run(const Options& options, const bench::Work& work) {
  return !wanted(options, work.name) || bench::measure(work).correct;
}

bool bench_copy(const Options& options, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  return run(options, {"copy/float32", [&] { std::memcpy(y.data(), x.data(), x.size() * 4); },
                       [&] { return y == x; }, options.n * 8});
}

bool bench_format(const Options& options, const FormatInfo& row, Isa isa_class, const std::vector<float>& x) {
  const auto bytes = static_cast<std::size_t>((options.n * row.bits + 7) / 8);
  std::vector<std::uint8_t> codes(bytes), want(bytes);
  std::vector<float> y(x.size()), back(x.size());
  row.encode(x.data(), want.data(), options.n);
  row.decode(want.data(), back.data(), options.n);
  const auto traffic = static_cast<std::int64_t>(bytes + x.size() * 4);
  const std::string suffix = std::string(row.name) + "/" + name(isa_class);
  bool ok = run(options, {"encode/" + suffix, [&] { encode(row.dtype, x.data(), codes.data(), options.n); },
                          [&] { return codes == want; }, traffic});
  ok &= run(options, {"decode/" + suffix, [&] { decode(row.dtype, want.data(), y.data(), options.n); },
                      [&] { return std::memcmp(y.data(), back.data(), x.size() * 4) == 0; }, traffic});
  return ok;
}

bool bench_quantize(const Options& options, DType type, const char* what, const ScaleLayout& layout,
                    Isa isa_class, const std::vector<float>& x) {
  const std::vector<float> scales(static_cast<std::size_t>(layout.scales()), 0.021f);
  const auto bytes = static_cast<std::size_t>((options.n * bits(type) + 7) / 8);
  std::vector<std::uint8_t> codes(bytes), want(bytes);
  std::vector<float> y(x.size()), back(x.size()), want_back(x.size());
  set_isa(Isa::kScalar);
  quantize(x.data(), layout, scales.data(), nullptr, {type}, want.data());
  dequantize(type, want.data(), layout, scales.data(), nullptr, want_back.data());
  set_isa(isa_class);
  const auto traffic = static_cast<std::int64_t>(bytes + x.size() * 4);
  const auto same = [&](const std::vector<float>& got) {
    return std::memcmp(got.data(), want_back.data(), x.size() * 4) == 0;
  };
  const std::string suffix = std::string(name(type)) + "/" + what + "/" + name(isa_class);
  bool ok = run(options, {"quantize/" + suffix,
                          [&] { quantize(x.data(), layout, scales.data(), nullptr, {type}, codes.data()); },
                          [&] { return codes == want; }, traffic});
  ok &= run(options, {"dequantize/" + suffix,
                      [&] { dequantize(type, want.data(), layout, scales.data(), nullptr, y.data()); },
                      [&] { return same(y); }, traffic});
  ok &= run(options, {"fake_quantize/" + suffix,
                      [&] { fake_quantize(x.data(), layout, scales.data(), nullptr, {type}, back.data()); },
                      [&] { return same(back); }, options.n * 8});
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t megabytes = argc > 1 ? std::max(1, std::atoi(argv[1])) : 16;
  const Options options{megabytes * (1 << 18), argc > 2 ? argv[2] : ""};
  std::vector<float> x(static_cast<std::size_t>(options.n));
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(rng);

  bool ok = bench_copy(options, x);
  int count = 0;
  const FormatInfo* rows = formats(count);
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
    const Isa isa_class = static_cast<Isa>(i);
    if (i > 0 &&
        reproducibility_class(isa_class) == std::string(reproducibility_class(static_cast<Isa>(i - 1))))
      continue;  // the same loops
    set_isa(isa_class);
    for (int r = 0; r < count; ++r)
      if (rows[r].encode != nullptr && rows[r].bits < 32) ok &= bench_format(options, rows[r], isa_class, x);
    const std::int64_t side = 512;
    for (const DType type : {DType::kI8, DType::kU8, DType::kI4, DType::kE4M3FN, DType::kE2M1}) {
      ok &= bench_quantize(options, type, "tensor", ScaleLayout::per_tensor(options.n), isa_class, x);
      ok &= bench_quantize(options, type, "channel_first",
                           ScaleLayout::per_channel({side, options.n / side}, 0), isa_class, x);
      ok &= bench_quantize(options, type, "channel_last",
                           ScaleLayout::per_channel({options.n / side, side}, 1), isa_class, x);
      ok &= bench_quantize(options, type, "block16", ScaleLayout::blocked({options.n / side, side}, 1, 16),
                           isa_class, x);
    }
  }
  return ok ? 0 : 1;
}
