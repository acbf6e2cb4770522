// Programs as code: pointwise kernels, and the way into row kernels (kernel_rows.cpp uses ProgramCode too).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"
#include "engine/cuda/program_code.h"

namespace pare::cuda {

// Axes are joined where every view walks them as one, never across a range.
ProgramCode::ProgramCode(const PlanLayer& layer, bool keep_last) : layer_(layer), dims_(layer.program.dims) {
  for (const ProgramLeaf& leaf : layer.program.leaves)
    strides_.push_back(layer.in[static_cast<std::size_t>(leaf.input)].strides);
  leaf_count_ = strides_.size();
  const bool rows = layer.kind == LayerKind::kRows;
  for (std::size_t o = 0; o < layer.out.size(); ++o)
    if (!rows || layer.out[o].dims == dims_)
      strides_.push_back(layer.out[o].strides);
    else
      strides_.push_back(Dims(dims_.size(), 0));
  if (dims_.empty()) {
    dims_ = {1};
    for (Dims& s : strides_) s = {0};
  }
  std::vector<bool> barrier(dims_.size(), false);
  for (const ProgramLeaf& leaf : layer.program.leaves)
    if (leaf.range_axis >= 0) barrier[static_cast<std::size_t>(leaf.range_axis)] = true;
  if (keep_last) barrier.back() = true;
  Dims dims;
  std::vector<Dims> strides(strides_.size());
  new_axis_.assign(dims_.size(), 0);
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] == 1 && !barrier[i]) continue;
    bool joins = !dims.empty() && !barrier[i] && !last_barrier_;
    for (std::size_t v = 0; joins && v < strides.size(); ++v)
      joins = strides[v].back() == strides_[v][i] * dims_[i];
    if (joins)
      dims.back() *= dims_[i];
    else
      dims.push_back(dims_[i]);
    for (std::size_t v = 0; v < strides.size(); ++v) {
      if (joins)
        strides[v].back() = strides_[v][i];
      else
        strides[v].push_back(strides_[v][i]);
    }
    last_barrier_ = barrier[i];
    new_axis_[i] = static_cast<int>(dims.size()) - 1;
  }
  if (dims.empty()) {
    dims = {1};
    for (Dims& s : strides) s = {0};
  }
  dims_ = std::move(dims);
  strides_ = std::move(strides);
}

bool ProgramCode::aligned(std::size_t view, int width) const {
  const Dims& s = strides_[view];
  const bool output = view >= leaf_count_;
  const PlanView& v = output ? layer_.out[view - leaf_count_]
                             : layer_.in[static_cast<std::size_t>(layer_.program.leaves[view].input)];
  if (s.back() != 1 || v.offset % width != 0) return false;
  for (std::size_t i = 0; i + 1 < s.size(); ++i)
    if (s[i] % width != 0) return false;
  if (!output) {
    const ProgramLeaf& leaf = layer_.program.leaves[view];
    if (leaf.index >= 0 && leaf.index_stride % width != 0) return false;
    if (leaf.range_axis >= 0 &&
        new_axis_[static_cast<std::size_t>(leaf.range_axis)] == static_cast<int>(s.size()) - 1)
      return false;
  }
  return true;
}

int ProgramCode::width() const {
  for (const int w : {8, 4, 2}) {
    if (dims_.back() % w != 0) continue;
    bool fits = true;
    for (std::size_t v = leaf_count_; v < strides_.size(); ++v)
      fits = fits && (strides_[v].back() == 0 || aligned(v, w));
    if (fits) return w;
  }
  return 1;
}

// "c0 * 768 + c2 * 64"
std::string ProgramCode::place(std::size_t view) const {
  std::string text;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    std::int64_t shift = 0;
    if (view < leaf_count_) {
      const ProgramLeaf& leaf = layer_.program.leaves[view];
      if (leaf.range_axis >= 0 && new_axis_[static_cast<std::size_t>(leaf.range_axis)] == static_cast<int>(i))
        shift = leaf.lo;
    }
    if (strides_[view][i] == 0) continue;
    text += text.empty() ? "" : " + ";
    text += shift == 0 ? fmt::format("(i64)c{} * {}", i, strides_[view][i])
                       : fmt::format("((i64)c{} - {}) * {}", i, shift, strides_[view][i]);
  }
  return text.empty() ? "0" : text;
}

std::string ProgramCode::leaf_code(std::size_t number, int w) const {
  const ProgramLeaf& leaf = layer_.program.leaves[number];
  const std::int64_t inner = strides_[number].back();
  const int in = leaf.input;
  std::string text =
      fmt::format("  float l{}[{}];\n  {{\n    const i64 at = {};\n", number, w, place(number));
  const int range = leaf.range_axis < 0 ? -1 : new_axis_[static_cast<std::size_t>(leaf.range_axis)];
  const bool inner_range = range == static_cast<int>(dims_.size()) - 1;
  const std::int64_t index_inner = leaf.index < 0 ? 0 : strides_[static_cast<std::size_t>(leaf.index)].back();
  const std::size_t index = static_cast<std::size_t>(std::max(leaf.index, 0));
  const std::string row = fmt::format("const i64 r = (i64)in{}[where{}]; const i64 row = r < 0 ? r + {} : r;",
                                      layer_.program.leaves[index].input, "", leaf.index_rows);
  std::string address = "at";
  if (leaf.index >= 0 && index_inner == 0) {
    // A row outside of its table is read as the table's first or last: memory is never left.
    text += fmt::format(
        "    i64 row = (i64)in{}[{}]; row = row < 0 ? row + {} : row; row = row < 0 ? 0 : row >= {} ? {} : "
        "row;\n",
        layer_.program.leaves[index].input, place(index), leaf.index_rows, leaf.index_rows,
        leaf.index_rows - 1);
    address = fmt::format("at + row * {}", leaf.index_stride);
  }
  std::string guard;
  if (range >= 0 && !inner_range)
    guard = fmt::format("if (c{} >= {} && c{} < {}) ", range, leaf.lo, range, leaf.hi);
  if (!guard.empty() || inner_range)
    text += fmt::format("#pragma unroll\n    for (int e = 0; e < {}; ++e) l{}[e] = 0.f;\n", w, number);
  if (leaf.index >= 0 && index_inner != 0) {
    text += fmt::format(
        "#pragma unroll\n    for (int e = 0; e < {}; ++e) {{ i64 row = (i64)in{}[{} + e * {}]; row = row < 0 "
        "? row + {} : row;"
        " row = row < 0 ? 0 : row >= {} ? {} : row; l{}[e] = get_(in{}[at + e * {} + row * {}]); }}\n",
        w, layer_.program.leaves[index].input, place(index), index_inner, leaf.index_rows, leaf.index_rows,
        leaf.index_rows - 1, number, in, inner, leaf.index_stride);
  } else if (inner_range) {
    text += fmt::format(
        "#pragma unroll\n    for (int e = 0; e < {}; ++e) if (c{} + e >= {} && c{} + e < {}) l{}[e] = "
        "get_(in{}[{} + e * {}]);\n",
        w, range, leaf.lo, range, leaf.hi, number, in, address, inner);
  } else if (inner == 0 || w == 1) {
    text += fmt::format(
        "    {}{{ const float f = get_(in{}[{}]);\n#pragma unroll\n    for (int e = 0; e < {}; ++e) l{}[e] = "
        "f; }}\n",
        guard, in, address, w, number);
  } else if (aligned(number, w)) {
    text += fmt::format("    {}load_<{}>(l{}, in{} + {});\n", guard, w, number, in, address);
  } else {
    text += fmt::format(
        "    {}{{\n#pragma unroll\n    for (int e = 0; e < {}; ++e) l{}[e] = get_(in{}[{} + e * {}]); }}\n",
        guard, w, number, in, address, inner);
  }
  return text + "  }\n";
}

std::string step_expression(const ProgramStep& step, const std::vector<std::string>& args) {
  if (step.op == "const") return number(step.x);
  if (static_cast<DType>(static_cast<int>(step.z)) == DType::kE4M3FN &&
      (step.op == "Quantize" || step.op == "FakeQuant"))
    return fmt::format("(e4m3_({} / {}){})", args[0], number(step.x),
                       step.op == "Quantize" ? "" : " * " + number(step.x));
  const StepInfo* info = find_step(step.op);
  PARE_ASSERT(info != nullptr && static_cast<int>(args.size()) == info->args);
  const std::string text = info->cuda;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto letter = [](char ch) {
      return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' || (ch >= '0' && ch <= '9');
    };
    const bool alone = (i == 0 || !letter(text[i - 1])) && (i + 1 == text.size() || !letter(text[i + 1]));
    const auto type = static_cast<DType>(static_cast<int>(step.z));
    if (alone && (c == 'a' || c == 'b' || c == 'c'))
      out += args[static_cast<std::size_t>(c - 'a')];
    else if (alone && c == 'x')
      out += number(step.x);
    else if (alone && c == 'y')
      out += number(step.y);
    else if (text.compare(i, 3, "lo_") == 0 && (i == 0 || !letter(text[i - 1]))) {
      out += number(code_low(type));
      i += 2;
    } else if (text.compare(i, 3, "hi_") == 0 && (i == 0 || !letter(text[i - 1]))) {
      out += number(code_high(type));
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

std::string ProgramCode::load_and_compute(int w) const {
  std::string text;
  std::vector<bool> read(leaf_count_, false);
  for (const ProgramStep& step : layer_.program.steps)
    if (step.op == "leaf") read[static_cast<std::size_t>(step.n)] = true;
  for (std::size_t l = 0; l < leaf_count_; ++l)
    if (read[l]) text += leaf_code(l, w);
  for (std::size_t r = 0; r < layer_.program.results.size(); ++r)
    text += fmt::format("  float o{}[{}];\n", r, w);
  text += fmt::format("#pragma unroll\n  for (int e = 0; e < {}; ++e) {{\n", w);
  for (std::size_t s = 0; s < layer_.program.steps.size(); ++s) {
    const ProgramStep& step = layer_.program.steps[s];
    std::vector<std::string> args;
    for (const int a : step.args) args.push_back(fmt::format("s{}", a));
    text += fmt::format("    const float s{} = {};\n", s,
                        step.op == "leaf" ? fmt::format("l{}[e]", step.n) : step_expression(step, args));
  }
  for (std::size_t r = 0; r < layer_.program.results.size(); ++r)
    text += fmt::format("    o{}[e] = s{};\n", r, layer_.program.results[r]);
  return text + "  }\n";
}

std::string ProgramCode::store_output(std::size_t o, int w, const std::string& values) const {
  const std::size_t view = leaf_count_ + o;
  if (w > 1 && aligned(view, w))
    return fmt::format("  store_<{}>(out{} + {}, {});\n", w, o, place(view), values);
  return fmt::format("#pragma unroll\n  for (int e = 0; e < {}; ++e) put_(out{}[{} + e * {}], {}[e]);\n", w,
                     o, place(view), strides_[view].back(), values);
}

std::string ProgramCode::image_body(std::int64_t& count) const {
  if (leaf_count_ != 1 || layer_.out.size() != 1 || dims_.size() < 3) return "";
  const ProgramLeaf& leaf = layer_.program.leaves[0];
  const std::size_t last = dims_.size() - 1;
  const Dims &in = strides_[0], &out = strides_[1];
  if (leaf.index >= 0 || leaf.range_axis < 0 || leaf.lo != 0 ||
      new_axis_[static_cast<std::size_t>(leaf.range_axis)] != static_cast<int>(last) || in[last - 1] != 1)
    return "";
  // [.., x, rows, columns, channels], blocks of rows x columns become channels; or [.., x, channels].
  const bool deep = dims_.size() >= 4 && in[last - 3] == dims_[last - 1] && dims_[last - 1] <= 4;
  const std::int64_t channels = dims_[last], rows = deep ? dims_[last - 2] : 1,
                     columns = deep ? dims_[last - 1] : 1;
  const std::size_t x = deep ? last - 3 : last - 1;
  if (4 % columns != 0) return "";
  const std::int64_t pixels = 4 / columns, each = rows * columns * channels;
  if (dims_[x] % pixels != 0 || each > 64 || leaf.hi * rows > 16) return "";
  std::int64_t dense = 1;
  for (std::size_t i = dims_.size(); i-- > 0; dense *= dims_[i])
    if (out[i] != dense) return "";
  for (std::size_t i = 0; i <= last; ++i)
    if (i != x && !(deep && i == last - 1) && in[i] % 4 != 0) return "";
  if (layer_.in[static_cast<std::size_t>(leaf.input)].offset % 4 != 0 || layer_.out[0].offset % 16 != 0)
    return "";
  int w = 16;
  while (each % w != 0) w /= 2;
  count = dense / (each * pixels);
  std::string t = fmt::format(
      "  u32 r = blockIdx.x * 256u + threadIdx.x;\n  if (r >= {}u) return;\n  const i64 to = (i64)r * {};\n  "
      "i64 at = 0;\n",
      count, each * pixels);
  for (std::size_t i = x + 1; i-- > 0;) {
    const std::int64_t size = i == x ? dims_[i] / pixels : dims_[i], step = i == x ? 4 : in[i];
    t += i == 0 ? fmt::format("  at += (i64)r * {};\n", step)
                : fmt::format("  at += (i64)(r % {0}u) * {1}; r /= {0}u;\n", size, step);
  }
  t += fmt::format(
      "  float l[{0}][{1}][4];\n#pragma unroll\n  for (int a = 0; a < {0}; ++a)\n#pragma unroll\n    for "
      "(int c "
      "= 0; c < {1}; ++c) load_<4>(l[a][c], in{2} + at + a * (i64){3} + c * (i64){4});\n",
      rows, leaf.hi, leaf.input, deep ? in[last - 2] : 0, in[last]);
  t += "  auto value = [&](float leaf) -> float {\n";
  for (std::size_t s = 0; s < layer_.program.steps.size(); ++s) {
    const ProgramStep& step = layer_.program.steps[s];
    std::vector<std::string> args;
    for (const int a : step.args) args.push_back(fmt::format("s{}", a));
    t += fmt::format("    const float s{} = {};\n", s,
                     step.op == "leaf" ? "leaf" : step_expression(step, args));
  }
  t += fmt::format("    return s{};\n  }};\n", layer_.program.results[0]);
  return t + fmt::format(R"(#pragma unroll
  for (int p = 0; p < {0}; ++p) {{
    float o[{1}];
#pragma unroll
    for (int a = 0; a < {2}; ++a)
#pragma unroll
      for (int b = 0; b < {3}; ++b)
#pragma unroll
        for (int c = 0; c < {4}; ++c) o[(a * {3} + b) * {4} + c] = value(c < {5} ? l[a][c < {5} ? c : 0][p * {3} + b] : 0.f);
#pragma unroll
    for (int i = 0; i < {1}; i += {6}) store_<{6}>(out0 + to + p * {1} + i, o + i);
  }}
)",
                         pixels, each, rows, columns, channels, leaf.hi, w);
}

std::vector<KernelSource> pointwise_kernels(const EnginePlan& plan, const PlanLayer& layer,
                                            std::string& why_not) {
  const ProgramCode code(layer, false);
  const int w = code.width();
  const std::int64_t count = element_count(code.dims()) / w;
  if (count > 0x7FFFFFFF) {
    why_not = "more than 2^31 elements";
    return {};
  }
  KernelSource source;
  source.tactic = fmt::format("pointwise:{}", w);
  source.block = 256;
  source.grid[0] = std::max<std::int64_t>((count + 255) / 256, 1);
  std::string text = "extern \"C\" __global__ void __launch_bounds__(256) kernel(" +
                     parameters(plan, layer, source) + ") {\n";
  text += "  await_(eager);\n";
  text += fmt::format("  u32 r = blockIdx.x * 256u + threadIdx.x;\n  if (r >= {}u) return;\n", count);
  for (std::size_t i = code.dims().size(); i-- > 0;) {
    const std::int64_t size = i + 1 == code.dims().size() ? code.dims()[i] / w : code.dims()[i];
    const char* scale = "";
    text += i == 0 ? fmt::format("  const u32 c{0} = r{1};\n", i,
                                 i + 1 == code.dims().size() && w > 1 ? fmt::format(" * {}u", w) : scale)
                   : fmt::format("  const u32 c{0} = r % {1}u{2}; r /= {1}u;\n", i, size,
                                 i + 1 == code.dims().size() && w > 1 ? fmt::format(" * {}u", w) : scale);
  }
  text += code.load_and_compute(w);
  for (std::size_t o = 0; o < layer.out.size(); ++o) text += code.store_output(o, w, fmt::format("o{}", o));
  source.code = text + "}\n";
  std::vector<KernelSource> sources = {source};
  std::int64_t threads = 0;
  if (const std::string body = code.image_body(threads); !body.empty() && threads <= 0x7FFFFFFF) {
    KernelSource image;
    image.tactic = "pointwise:image";
    image.block = 256;
    image.grid[0] = (threads + 255) / 256;
    image.code = "extern \"C\" __global__ void __launch_bounds__(256) kernel(" +
                 parameters(plan, layer, image) + ") {\n  await_(eager);\n" + body + "}\n";
    sources.insert(sources.begin(), std::move(image));
  }
  return sources;
}

}  // namespace pare::cuda
