// Pad with what is in the data (edge, reflect, wrap): whole rows are copied, and the ends of rows element by
// element.
#include <algorithm>
#include <cstring>

#include "engine/base/grain.h"
#include "engine/ops/movement/movement.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

std::string why_not(const OpCall& call) {
  if (is_packed(call.in[0].dtype)) return "packed elements";
  const std::string mode = call.node->attr("mode", "constant");
  if (mode == "constant") return "the other kernel's business";
  if (mode != "edge" && mode != "reflect" && mode != "wrap") return "mode " + mode;
  if (call.in[0].dims.empty()) return "a scalar";
  return moved_type_reason(call, 0);
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  if (y.size() == 0) return;
  const std::string mode = call.node->attr("mode", "constant");
  const Dims begin = pad_begins(call), strides = row_major_strides(x.dims);
  const auto size = static_cast<std::size_t>(element_bytes(x.dtype));
  const std::size_t last = y.dims.size() - 1;
  std::vector<std::vector<std::int64_t>> sources(y.dims.size());  // a place in the data for each of y
  for (std::size_t k = 0; k <= last; ++k)
    for (std::int64_t i = 0; i < y.dims[k]; ++i)
      sources[k].push_back(padded_source(i - begin[k], x.dims[k], mode));
  const std::int64_t width = y.dims[last];
  // The middle of a row is a row of the data.
  const std::int64_t from = std::clamp<std::int64_t>(begin[last], 0, width),
                     to = std::clamp<std::int64_t>(begin[last] + x.dims[last], from, width);
  const std::byte zero[16] = {};
  const auto* data = x.as<std::byte>();
  call.pool->parallel_for(
      y.size() / width, grain_for(kElementGrain, width), [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t row = first; row < end; ++row) {
          std::int64_t rest = row, base = 0;
          bool inside = true;  // an axis of no elements has nothing to show
          for (std::size_t k = last; k-- > 0;) {
            const std::int64_t source = sources[k][static_cast<std::size_t>(rest % y.dims[k])];
            rest /= y.dims[k];
            inside = inside && source >= 0;
            base += source * strides[k];
          }
          auto* out = y.mut<std::byte>() + static_cast<std::size_t>(row * width) * size;
          const auto put = [&](std::int64_t i) {
            const std::int64_t source = sources[last][static_cast<std::size_t>(i)];
            const bool there = inside && source >= 0;
            std::memcpy(out + static_cast<std::size_t>(i) * size,
                        there ? data + static_cast<std::size_t>(base + source) * size : zero, size);
          };
          for (std::int64_t i = 0; i < (inside ? from : width); ++i) put(i);
          if (!inside) continue;
          if (from < to)
            std::memcpy(out + static_cast<std::size_t>(from) * size,
                        data + static_cast<std::size_t>(base + from - begin[last]) * size,
                        static_cast<std::size_t>(to - from) * size);
          for (std::int64_t i = to; i < width; ++i) put(i);
        }
      });
}

}  // namespace

void add_pad_kernels(Registry& registry) {
  registry.add({"", "Pad", Backend::kCpu, "Pad/cpu:rows", why_not, nullptr, run});
}

}  // namespace pare
