#include "datasets/dataset.h"
#include "datasets/random.h"
#include "engine/base/error.h"

namespace pare {

namespace {

template <typename T>
void fill_bits(Tensor& tensor, SplitMix& random) {
  T* values = tensor.mut<T>();
  for (std::int64_t i = 0, n = tensor.size(); i < n; ++i) values[i] = static_cast<T>(random.next() >> 63);
}

}  // namespace

std::vector<Tensor> synthetic_inputs(const std::vector<InputSpec>& model, std::int64_t batch,
                                     const std::vector<std::pair<std::string, Dims>>& given,
                                     std::uint64_t seed) {
  std::vector<Tensor> tensors;
  SplitMix random(seed);
  for (const InputSpec& input : model) {
    Dims dims;
    const auto own =
        std::find_if(given.begin(), given.end(), [&](const auto& pair) { return pair.first == input.name; });
    if (own != given.end()) {
      dims = own->second;
      if (!input.shape.fits(dims))
        throw make_error(ErrorCode::kUsage, "the shape {} was given for '{}', but the model asks for {}",
                         to_string(dims), input.name, to_string(input.shape))
            .hint("give the sizes that the model fixes, and numbers for those it leaves open");
    } else {
      if (!input.shape.ranked)
        throw make_error(ErrorCode::kUsage, "the model does not say the shape of its input '{}'", input.name)
            .hint(fmt::format("give one: --input-shape {}=1x3x224x224", input.name));
      for (std::size_t d = 0; d < input.shape.dims.size(); ++d) {
        const Dim& dim = input.shape.dims[d];
        if (!dim.known() && d > 0)
          throw make_error(ErrorCode::kUsage, "the model's input '{}' is {}: '{}' is not known", input.name,
                           to_string(input.shape), to_string(dim))
              .hint(fmt::format("give the shape: --input-shape {}=SIZExSIZE...", input.name));
        dims.push_back(dim.known() ? dim.value : batch);
      }
    }
    Tensor tensor = Tensor::allocate(input.dtype, dims);
    if (input.dtype == DType::kF32) {
      float* values = tensor.mut<float>();
      for (std::int64_t i = 0, n = tensor.size(); i < n; ++i) values[i] = random.normal();
    } else if (input.dtype == DType::kF64) {
      double* values = tensor.mut<double>();
      for (std::int64_t i = 0, n = tensor.size(); i < n; ++i) values[i] = random.normal();
    } else if (is_integer(input.dtype) || input.dtype == DType::kBool) {
      switch (bits(input.dtype)) {
        case 8:
          fill_bits<std::uint8_t>(tensor, random);
          break;
        case 16:
          fill_bits<std::uint16_t>(tensor, random);
          break;
        case 32:
          fill_bits<std::uint32_t>(tensor, random);
          break;
        case 64:
          fill_bits<std::uint64_t>(tensor, random);
          break;
        default:
          throw make_error(ErrorCode::kUnsupported, "no generated data of type {} for '{}'",
                           name(input.dtype), input.name)
              .hint("measure with real samples: --data");
      }
    } else {
      throw make_error(ErrorCode::kUnsupported, "no generated data of type {} for '{}'", name(input.dtype),
                       input.name)
          .hint("measure with real samples: --data");
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace pare
