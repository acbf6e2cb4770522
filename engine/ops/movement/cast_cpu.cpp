// Cast between number types of C++ where the language's conversion is ONNX's: from integers and bool to
// anything, between float32 and float64, and to bool. (Floats to integers have rules of their own:
// convert.h.)
#include "engine/ops/movement/movement.h"
#include "engine/ops/registry.h"
#include "engine/ops/support.h"

namespace pare {
namespace {

bool is_native(DType type) {
  return with_native_type(type, [](auto) {});
}

std::string why_not(const OpCall& call) {
  const DType from = call.in[0].dtype, to = call.out[0].dtype;
  if (!is_native(from) || !is_native(to)) return "a type that C++ has not";
  if (is_float(from) && !is_float(to) && to != DType::kBool) return "a float to an integer";
  return {};
}

template <typename From, typename To>
void cast_row(const From* x, To* y, std::int64_t n, bool to_bool, bool from_bool) {
  if (to_bool) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] != From{0} ? To{1} : To{0};
  } else if (from_bool) {  // any byte but 0 is true
    for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] != From{0} ? To{1} : To{0};
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<To>(x[i]);
  }
}

void run(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  with_native_type(x.dtype, [&](auto from) {
    with_native_type(y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      // Never run for these (why_not), and to convert them so would be undefined.
      if constexpr (!std::is_floating_point_v<From> || std::is_floating_point_v<To> || sizeof(To) == 1)
        call.pool->parallel_for(x.size(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
          cast_row(x.as<From>() + begin, y.mut<To>() + begin, end - begin, y.dtype == DType::kBool,
                   x.dtype == DType::kBool);
        });
    });
  });
}

}  // namespace

void add_cast_kernels(Registry& registry) {
  registry.add({"", "Cast", Backend::kCpu, "Cast/cpu:native", why_not, nullptr, run});
  registry.add({"", "CastLike", Backend::kCpu, "CastLike/cpu:native", why_not, nullptr, run});
}

}  // namespace pare
