#include "engine/run/stack.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace pare {
namespace {

constexpr std::int64_t kReservedBytes = 1 << 20;  // of an announced count, which may be a lie

}  // namespace

void Stack::push(const TensorView& view) {
  if (!view.present()) fail(ErrorCode::kBadFile, "'{}' is no tensor: it cannot be stacked", each_.name);
  if (count_ == 0) {
    dtype_ = view.dtype;
    dims_ = view.dims;
    if (bits(dtype_) < 8 && dtype_ != DType::kString)
      fail(ErrorCode::kUnsupported, "'{}' is {}: what is stacked needs 8 bits an element or more", each_.name,
           name(dtype_));
  }
  if (view.dtype != dtype_ || view.dims != dims_)
    fail(ErrorCode::kBadFile, "'{}' is {} {} in iteration {}, {} {} before: it cannot be stacked", each_.name,
         name(view.dtype), to_string(view.dims), count_, name(dtype_), to_string(dims_));
  if (dtype_ == DType::kString) {
    const auto* from = view.as<std::string>();
    strings_.insert(strings_.end(), from, from + view.size());
  } else {
    const std::int64_t bytes = byte_count(view.dtype, view.dims), used = bytes * count_;
    if (memory_.empty() || memory_.bytes() < used + bytes) {
      std::int64_t more = std::max(used * 2, used + bytes);
      if (count_ == 0)
        more = std::max(more, std::min(expected_, kReservedBytes / std::max<std::int64_t>(1, bytes)) * bytes);
      Tensor larger = Tensor::allocate(DType::kU8, {more});
      if (used != 0) std::memcpy(larger.mut<std::byte>(), memory_.data(), static_cast<std::size_t>(used));
      memory_ = std::move(larger);
    }
    if (bytes != 0) std::memcpy(memory_.mut<std::byte>() + used, view.data, static_cast<std::size_t>(bytes));
  }
  ++count_;
}

Slot Stack::finish(BufferPool& pool) {
  if (count_ == 0) {  // sizes that only an iteration could tell are 0
    dtype_ = each_.dtype;
    for (const Dim& dim : each_.shape.dims) dims_.push_back(std::max<std::int64_t>(0, dim.value));
    if (dtype_ == DType::kUndefined)
      fail(ErrorCode::kUnsupported, "there was no iteration to tell the type of '{}'", each_.name);
  }
  const auto rank = static_cast<std::int64_t>(dims_.size());
  const std::int64_t axis = axis_ < 0 ? axis_ + rank + 1 : axis_;
  if (axis < 0 || axis > rank)
    fail(ErrorCode::kBadFile, "'{}' is stacked along axis {} of {} axes", each_.name, axis_, rank + 1);
  Dims dims = dims_;
  dims.insert(dims.begin() + axis, count_);
  Slot slot = make_slot(dtype_, dims, pool);
  std::int64_t outer = 1, inner = 1;
  for (std::int64_t d = 0; d < rank; ++d) (d < axis ? outer : inner) *= dims_[static_cast<std::size_t>(d)];
  const bool text = dtype_ == DType::kString;
  const std::int64_t bytes = text ? 0 : inner * bits(dtype_) / 8;
  for (std::int64_t t = 0; t < count_; ++t) {
    const std::int64_t place = backwards_ ? count_ - 1 - t : t;
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t from = t * outer + o, to = o * count_ + place;
      if (text)
        std::move(strings_.begin() + from * inner, strings_.begin() + (from + 1) * inner,
                  slot.view.mut<std::string>() + to * inner);
      else if (bytes != 0)
        std::memcpy(slot.view.mut<std::byte>() + to * bytes, memory_.as<std::byte>() + from * bytes,
                    static_cast<std::size_t>(bytes));
    }
  }
  return slot;
}

}  // namespace pare
