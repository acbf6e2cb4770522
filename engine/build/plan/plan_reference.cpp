#include "engine/build/plan/plan_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/build/plan/program.h"
#include "engine/numeric/convert.h"

namespace pare {
namespace {

// A tensor as float32 for the time of one layer.
struct Floats {
  std::vector<float> data;
  float operator[](std::int64_t i) const { return data[static_cast<std::size_t>(i)]; }
};

class Layer {
 public:
  Layer(const EnginePlan& plan, const PlanLayer& layer, std::vector<Tensor>& values)
      : plan_(plan), layer_(layer), values_(values) {}

  void run() {
    for (const PlanView& view : layer_.in) in_.push_back(view.present() ? read(view.tensor) : Floats{});
    for (const PlanView& view : layer_.out) {
      Tensor& t = values_[static_cast<std::size_t>(view.tensor)];
      const PlanTensor& spec = plan_.tensors[static_cast<std::size_t>(view.tensor)];
      if (t.empty()) t = Tensor::allocate(spec.dtype, spec.dims);
    }
    switch (layer_.kind) {
      case LayerKind::kConv:
        conv();
        break;
      case LayerKind::kGemm:
        gemm();
        break;
      case LayerKind::kAttention:
        attention();
        break;
      case LayerKind::kPointwise:
        pointwise();
        break;
      case LayerKind::kRows:
        rows();
        break;
      case LayerKind::kPool:
        pool();
        break;
    }
  }

 private:
  Floats read(int id) const {
    const PlanTensor& spec = plan_.tensors[static_cast<std::size_t>(id)];
    const Tensor& t = spec.role == PlanRole::kWeight ? spec.data : values_[static_cast<std::size_t>(id)];
    PARE_ASSERT(!t.empty());
    Floats f;
    f.data.resize(static_cast<std::size_t>(t.size()));
    convert(t.view(), TensorView{DType::kF32, t.dims(), f.data.data()});
    return f;
  }
  void store(std::size_t slot, std::int64_t at, float v) {
    const PlanView& view = layer_.out[slot];
    Tensor& t = values_[static_cast<std::size_t>(view.tensor)];
    const std::int64_t i = view.offset + at;
    switch (t.dtype()) {
      case DType::kI8:
        t.mut<std::int8_t>()[i] = static_cast<std::int8_t>(v);
        break;
      case DType::kU8:
      case DType::kBool:
        t.mut<std::uint8_t>()[i] = static_cast<std::uint8_t>(v);
        break;
      case DType::kI32:
        t.mut<std::int32_t>()[i] = static_cast<std::int32_t>(v);
        break;
      case DType::kI64:
        t.mut<std::int64_t>()[i] = static_cast<std::int64_t>(v);
        break;
      default:
        encode(t.dtype(), &v, t.mut<std::byte>() + i * (bits(t.dtype()) / 8), 1);
    }
  }
  static std::int64_t place(const PlanView& view, const Dims& at) {
    std::int64_t i = view.offset;
    for (std::size_t d = 0; d < at.size(); ++d) i += at[d] * view.strides[d];
    return i;
  }
  static std::int64_t relative(const PlanView& view, const Dims& at) { return place(view, at) - view.offset; }
  template <typename Body>
  static void each(const Dims& dims, Body body) {
    const std::int64_t count = element_count(dims);
    Dims at(dims.size(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      body(at);
      for (std::size_t d = dims.size(); d-- > 0;) {
        if (++at[d] < dims[d]) break;
        at[d] = 0;
      }
    }
  }

  float leaf(int number, const Dims& at) const {
    const ProgramLeaf& l = layer_.program.leaves[static_cast<std::size_t>(number)];
    const PlanView& view = layer_.in[static_cast<std::size_t>(l.input)];
    Dims where = at;
    if (l.range_axis >= 0) {
      auto& c = where[static_cast<std::size_t>(l.range_axis)];
      if (c < l.lo || c >= l.hi) return 0;
      c -= l.lo;
    }
    std::int64_t i = place(view, where);
    if (l.index >= 0) {
      auto row = static_cast<std::int64_t>(leaf(l.index, at));
      if (row < 0) row += l.index_rows;
      if (row < 0 || row >= l.index_rows) fail(ErrorCode::kUsage, "an index is outside of its table");
      i += row * l.index_stride;
    }
    return in_[static_cast<std::size_t>(l.input)][i];
  }

  void evaluate(const Dims& at, std::vector<float>& values) const {
    const Program& p = layer_.program;
    values.resize(p.steps.size());
    for (std::size_t s = 0; s < p.steps.size(); ++s) {
      const ProgramStep& step = p.steps[s];
      if (step.op == "leaf") {
        values[s] = leaf(step.n, at);
        continue;
      }
      float args[3] = {0, 0, 0};
      for (std::size_t a = 0; a < step.args.size(); ++a)
        args[a] = values[static_cast<std::size_t>(step.args[a])];
      values[s] = evaluate_step(step, args);
    }
  }

  void pointwise() {
    std::vector<float> values;
    each(layer_.program.dims, [&](const Dims& at) {
      evaluate(at, values);
      for (std::size_t r = 0; r < layer_.out.size(); ++r)
        store(r, relative(layer_.out[r], at), values[static_cast<std::size_t>(layer_.program.results[r])]);
    });
  }

  void rows() {
    const Program& p = layer_.program;
    Dims outer = p.dims;
    const std::int64_t columns = outer.back();
    outer.back() = 1;
    const std::size_t gamma = layer_.in.size() - 2, beta = layer_.in.size() - 1;
    std::vector<float> values, x(static_cast<std::size_t>(columns)), y(x.size());
    each(outer, [&](const Dims& first) {
      Dims at = first;
      for (std::int64_t c = 0; c < columns; ++c) {
        at.back() = c;
        evaluate(at, values);
        x[static_cast<std::size_t>(c)] = values[static_cast<std::size_t>(p.results[0])];
        for (std::size_t r = 1; r < p.results.size(); ++r)
          store(r, relative(layer_.out[r], at), values[static_cast<std::size_t>(p.results[r])]);
      }
      const std::size_t count = reduce(x, y, gamma, beta);
      Dims place_at = first;
      if (count == 1 && columns != 1) {  // a reduction: the result has one value a row
        store(0, row_number(first, outer), y[0]);
        return;
      }
      if (count == 1) {
        store(0, row_number(first, outer), y[0]);
        return;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        place_at.back() = c;
        store(0, relative(layer_.out[0], place_at), y[static_cast<std::size_t>(c)]);
        if (copies_codes(layer_))
          store(layer_.out.size() - 1, relative(layer_.out.back(), place_at),
                copy_code(static_cast<double>(y[static_cast<std::size_t>(c)])));
      }
    });
  }
  static std::int64_t row_number(const Dims& at, const Dims& outer) {
    std::int64_t i = 0;
    for (std::size_t d = 0; d < at.size(); ++d) i = i * outer[d] + at[d];
    return i;
  }

  std::size_t reduce(const std::vector<float>& x, std::vector<float>& y, std::size_t gamma,
                     std::size_t beta) const {
    const std::string& op = layer_.op;
    const auto n = static_cast<double>(x.size());
    double sum = 0, most = -INFINITY, least = INFINITY;
    for (const float v : x) {
      sum += static_cast<double>(v);
      most = std::max(most, static_cast<double>(v));
      least = std::min(least, static_cast<double>(v));
    }
    const auto after = [&](double v) {
      auto f = static_cast<float>(v);
      for (const ProgramStep& step : layer_.post) {
        const float args[3] = {f, 0, 0};
        f = evaluate_step(step, args);
      }
      return f;
    };
    if (op.rfind("Reduce", 0) == 0) {
      y[0] = after(op == "ReduceMean" ? sum / n : op == "ReduceSum" ? sum : op == "ReduceMax" ? most : least);
      return 1;
    }
    if (op == "Softmax") {
      double total = 0;
      for (const float v : x) total += std::exp(static_cast<double>(v) - most);
      for (std::size_t i = 0; i < x.size(); ++i)
        y[i] = after(std::exp(static_cast<double>(x[i]) - most) / total);
      return x.size() == 1 ? 2 : x.size();
    }
    const double mean = op == "LayerNormalization" ? sum / n : 0;
    double square = 0;
    for (const float v : x) square += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
    const double inverse = 1 / std::sqrt(square / n + layer_.epsilon);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double v = (static_cast<double>(x[i]) - mean) * inverse;
      const auto column = [&](std::size_t slot) {
        const PlanView& view = layer_.in[slot];
        return static_cast<double>(
            in_[slot][view.offset + static_cast<std::int64_t>(i) * view.strides.back()]);
      };
      if (layer_.in[gamma].present()) v *= column(gamma);
      if (layer_.in[beta].present()) v += column(beta);
      y[i] = after(v);
    }
    return x.size() == 1 ? 2 : x.size();
  }

  bool has(std::size_t slot) const { return slot < layer_.in.size() && layer_.in[slot].present(); }
  double column_value(std::size_t slot, std::int64_t column) const {
    return static_cast<double>(in_[slot][layer_.in[slot].offset + column]);
  }
  // Mean and 1 / deviation of a row whose sums a product has left.
  std::pair<double, double> row_stats(std::size_t slot, std::int64_t row, double epsilon) const {
    const std::int64_t pieces = layer_.in[slot].dims[1];
    const Floats& f = in_[slot];
    const std::int64_t first = layer_.in[slot].offset + row * layer_.in[slot].strides[0];
    double mean = 0, square = 0;
    for (std::int64_t i = 0; i < pieces; ++i) mean += static_cast<double>(f[first + i * 2]);
    mean /= static_cast<double>(pieces * 32);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const double d = static_cast<double>(f[first + i * 2]) / 32 - mean;
      square += static_cast<double>(f[first + i * 2 + 1]) + 32 * d * d;
    }
    return {mean, 1 / std::sqrt(std::max(square / static_cast<double>(pieces * 32), 0.0) + epsilon)};
  }
  // The sums of the rows of a finished product (out 1).
  void store_row_sums() {
    if (!leaves_sums(layer_)) return;
    const std::int64_t rows = layer_.out[1].dims[0], pieces = layer_.out[1].dims[1];
    const Floats y = read(layer_.out[0].tensor);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t p = 0; p < pieces; ++p) {
        double sum = 0, square = 0;
        const std::int64_t at = layer_.out[0].offset + r * pieces * 32 + p * 32;
        for (int i = 0; i < 32; ++i) sum += static_cast<double>(y[at + i]);
        for (int i = 0; i < 32; ++i) square += std::pow(static_cast<double>(y[at + i]) - sum / 32, 2);
        store(1, (r * pieces + p) * 2, static_cast<float>(sum));
        store(1, (r * pieces + p) * 2 + 1, static_cast<float>(square));
      }
  }
  float copy_code(double v) const {
    return code_of(v, layer_.copy_scale, layer_.copy_zero,
                   plan_.tensors[static_cast<std::size_t>(layer_.out.back().tensor)].dtype);
  }
  static float code_of(double v, double scale, double zero, DType type) {
    v /= scale;
    if (type != DType::kE4M3FN) v = std::nearbyint(v) + zero;
    return static_cast<float>(std::min(std::max(v, code_low(type)), code_high(type)));
  }

  double shortcut(std::int64_t row, std::int64_t column) const {
    const Shortcut& s = layer_.shortcut;
    const ConvGeometry& g = s.conv;
    const std::int64_t ox = row % g.ow, oy = row / g.ow % g.oh, n = row / (g.ow * g.oh);
    const std::int64_t x = layer_.in[kShortX].offset + ((n * g.h + oy * g.sh) * g.w + ox * g.sw) * g.c,
                       w = layer_.in[kShortW].offset + column * g.c;
    double sum = 0;
    for (std::int64_t c = 0; c < g.c; ++c)
      sum += static_cast<double>(in_[kShortX][x + c]) * static_cast<double>(in_[kShortW][w + c]);
    double v = sum * static_cast<double>(s.alpha);
    if (has(kShortScale)) v *= column_value(kShortScale, column);
    if (has(kShortBias)) v += column_value(kShortBias, column);
    float stored = static_cast<float>(v);
    if (bits(s.type) == 8)
      stored = code_of(v, static_cast<double>(s.y_scale), static_cast<double>(s.y_zero), s.type);
    std::byte raw[4];
    if (s.type == DType::kI8 || s.type == DType::kU8) return static_cast<double>(stored);
    encode(s.type, &stored, raw, 1);
    convert(TensorView{s.type, {1}, raw}, TensorView{DType::kF32, {1}, &stored});
    return static_cast<double>(stored);
  }

  float finish(double sum, std::int64_t column, std::int64_t at, std::int64_t row = 0) const {
    const Epilogue& e = layer_.epilogue;
    double v = sum * static_cast<double>(e.alpha);
    if (has(kNormStats)) {
      const auto [mean, inverse] = row_stats(kNormStats, row, layer_.epsilon);
      v = inverse * (v - mean * column_value(kNormColumns, column));
    }
    if (layer_.in[4].present()) v *= static_cast<double>(in_[4][column]);
    if (layer_.in[2].present()) v += static_cast<double>(in_[2][column]);
    if (layer_.in[3].present()) {
      auto r = static_cast<double>(in_[3][layer_.in[3].offset + at]);
      if (has(kResidualStats)) {
        const auto [mean, inverse] = row_stats(kResidualStats, row, layer_.r_epsilon);
        r = (r - mean) * inverse;
        if (has(kResidualGamma)) r *= column_value(kResidualGamma, column);
        if (has(kResidualBeta)) r += column_value(kResidualBeta, column);
      }
      v += static_cast<double>(e.r_scale) * r;
    }
    if (has_shortcut(layer_)) v += static_cast<double>(e.r_scale) * shortcut(row, column);
    v = e.act(v);
    const DType type = plan_.tensors[static_cast<std::size_t>(layer_.out[0].tensor)].dtype;
    if (bits(type) != 8 && (!has(kYScales) || column_value(kYScales, column) == 0))
      return static_cast<float>(v);
    if (bits(type) != 8) return code_of(v, 1 / column_value(kYScales, column), 0, DType::kI8);
    return code_of(v, has(kYScales) ? 1 / column_value(kYScales, column) : static_cast<double>(e.y_scale),
                   static_cast<double>(e.y_zero), type);
  }

  void conv() {
    const ConvGeometry& g = layer_.conv;
    const Floats &x = in_[0], &w = in_[1];
    const std::int64_t gc = g.group_c(), gm = g.group_m();
    const bool depthwise = g.group > 1 && gc == 1 && gm == 1;
    for (std::int64_t n = 0; n < g.n; ++n)
      for (std::int64_t oy = 0; oy < g.oh; ++oy)
        for (std::int64_t ox = 0; ox < g.ow; ++ox)
          for (std::int64_t m = 0; m < g.m; ++m) {
            double sum = 0;
            for (std::int64_t ky = 0; ky < g.kh; ++ky)
              for (std::int64_t kx = 0; kx < g.kw; ++kx) {
                const std::int64_t iy = oy * g.sh - g.top + ky * g.dh, ix = ox * g.sw - g.left + kx * g.dw;
                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
                const std::int64_t base = ((n * g.h + iy) * g.w + ix) * g.c + m / gm * gc;
                for (std::int64_t c = 0; c < gc; ++c)
                  sum += static_cast<double>(x[layer_.in[0].offset + base + c]) *
                         static_cast<double>(depthwise ? w[(ky * g.kw + kx) * g.m + m]
                                                       : w[((m * g.kh + ky) * g.kw + kx) * gc + c]);
              }
            const std::int64_t at = ((n * g.oh + oy) * g.ow + ox) * g.m + m;
            const float v = finish(sum, m, at);
            store(0, at, v);
            if (copies_codes(layer_)) store(1, at, copy_code(static_cast<double>(v)));
          }
  }

  void gemm() {
    const PlanView &x = layer_.in[0], &w = layer_.in[1], &y = layer_.out[0];
    const std::int64_t k = x.dims[2];
    for (std::int64_t b = 0; b < y.dims[0]; ++b)
      for (std::int64_t m = 0; m < y.dims[1]; ++m)
        for (std::int64_t n = 0; n < y.dims[2]; ++n) {
          double sum = 0;
          std::int64_t xi = x.offset + b * x.strides[0] + m * x.strides[1];
          std::int64_t wi = w.offset + b * w.strides[0] + n * w.strides[1];
          for (std::int64_t i = 0; i < k; ++i, xi += x.strides[2], wi += w.strides[2])
            sum += static_cast<double>(in_[0][xi]) * static_cast<double>(in_[1][wi]);
          const std::int64_t at = b * y.strides[0] + m * y.strides[1] + n * y.strides[2];
          const float v = finish(sum, n, at, m);
          store(0, at, v);
          if (copies_codes(layer_)) store(1, at, copy_code(static_cast<double>(v)));
        }
    store_row_sums();
  }

  void attention() {
    const PlanView &q = layer_.in[0], &k = layer_.in[1], &v = layer_.in[2], &mask = layer_.in[3],
                   &y = layer_.out[0];
    const std::int64_t share = q.dims[1] / k.dims[1], keys = k.dims[2];
    const DType type = plan_.tensors[static_cast<std::size_t>(y.tensor)].dtype;
    std::vector<double> p(static_cast<std::size_t>(keys));
    for (std::int64_t b = 0; b < q.dims[0]; ++b)
      for (std::int64_t h = 0; h < q.dims[1]; ++h)
        for (std::int64_t s = 0; s < q.dims[2]; ++s) {
          double most = -INFINITY, total = 0;
          for (std::int64_t t = 0; t < keys; ++t) {
            double dot = 0;
            for (std::int64_t d = 0; d < q.dims[3]; ++d)
              dot += static_cast<double>(in_[0][place(q, {b, h, s, d})]) *
                     static_cast<double>(in_[1][place(k, {b, h / share, t, d})]);
            dot *= static_cast<double>(layer_.epilogue.alpha);
            if (mask.present()) dot += static_cast<double>(in_[3][place(mask, {b, h, s, t})]);
            p[static_cast<std::size_t>(t)] = dot;
            most = std::max(most, dot);
          }
          for (double& e : p) total += e = std::exp(e - most);
          for (double& e : p) {
            e = layer_.nan_zero && std::isinf(most) && most < 0 ? 0 : e / total;
            for (const ProgramStep& step : layer_.post) {
              const float args[3] = {static_cast<float>(e), 0, 0};
              e = static_cast<double>(evaluate_step(step, args));
            }
          }
          for (std::int64_t d = 0; d < v.dims[3]; ++d) {
            double sum = 0;
            for (std::int64_t t = 0; t < keys; ++t)
              sum += p[static_cast<std::size_t>(t)] *
                     static_cast<double>(in_[2][place(v, {b, h / share, t, d})]);
            sum *= static_cast<double>(layer_.epilogue.r_scale);
            store(0, relative(y, {b, h, s, d}),
                  bits(type) == 8 ? code_of(sum, static_cast<double>(layer_.epilogue.y_scale),
                                            static_cast<double>(layer_.epilogue.y_zero), type)
                                  : static_cast<float>(sum));
          }
        }
  }

  void pool() {
    const ConvGeometry& g = layer_.conv;
    const bool max = layer_.op == "MaxPool";
    const DType from = plan_.tensors[static_cast<std::size_t>(layer_.in[0].tensor)].dtype,
                type = plan_.tensors[static_cast<std::size_t>(layer_.out[0].tensor)].dtype;
    for (std::int64_t n = 0; n < g.n; ++n)
      for (std::int64_t oy = 0; oy < g.oh; ++oy)
        for (std::int64_t ox = 0; ox < g.ow; ++ox)
          for (std::int64_t c = 0; c < g.c; ++c) {
            double sum = 0, most = -INFINITY;
            std::int64_t count = 0;
            for (std::int64_t ky = 0; ky < g.kh; ++ky)
              for (std::int64_t kx = 0; kx < g.kw; ++kx) {
                const std::int64_t iy = oy * g.sh - g.top + ky * g.dh, ix = ox * g.sw - g.left + kx * g.dw;
                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
                const auto v =
                    static_cast<double>(in_[0][layer_.in[0].offset + ((n * g.h + iy) * g.w + ix) * g.c + c]);
                sum += v;
                most = std::isnan(v) || v > most ? v : most;
                ++count;
              }
            if (layer_.op == "AveragePool+pads") count = g.kh * g.kw;
            const double v = max ? most : sum / static_cast<double>(count);
            store(0, ((n * g.oh + oy) * g.ow + ox) * g.c + c,
                  bits(type) == 8 && bits(from) != 8
                      ? code_of(v, static_cast<double>(layer_.epilogue.y_scale),
                                static_cast<double>(layer_.epilogue.y_zero), type)
                      : static_cast<float>(v));
          }
  }

  const EnginePlan& plan_;
  const PlanLayer& layer_;
  std::vector<Tensor>& values_;
  std::vector<Floats> in_;
};

}  // namespace

void run_layer_reference(const EnginePlan& plan, const PlanLayer& layer, std::vector<Tensor>& values) {
  with_context("running layer '" + layer.name + "'", [&] { Layer(plan, layer, values).run(); });
}

std::vector<Tensor> run_plan_reference(const EnginePlan& plan, const std::vector<Tensor>& inputs) {
  PARE_ASSERT(inputs.size() == plan.inputs.size());
  std::vector<Tensor> values(plan.tensors.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    values[static_cast<std::size_t>(plan.inputs[i])] = inputs[i];
  for (const PlanLayer& layer : plan.layers) run_layer_reference(plan, layer, values);
  std::vector<Tensor> outputs;
  for (const int id : plan.outputs) outputs.push_back(values[static_cast<std::size_t>(id)]);
  return outputs;
}

}  // namespace pare
