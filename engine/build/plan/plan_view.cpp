#include "engine/build/plan/plan_view.h"

#include "engine/base/error.h"

namespace pare {

// Groups of old axes and groups of new axes with equal products are matched from the left; inside a group the
// old axes must lie behind each other without gaps.
bool view_reshape(PlanView& view, const Dims& dims) {
  if (element_count(dims) != element_count(view.dims)) return false;
  Dims old_dims, old_strides;
  for (std::size_t i = 0; i < view.dims.size(); ++i)
    if (view.dims[i] != 1) {
      old_dims.push_back(view.dims[i]);
      old_strides.push_back(view.strides[i]);
    }
  Dims strides(dims.size(), 0);
  if (element_count(dims) == 0) {
    view.strides = dense_strides(dims);
    view.dims = dims;
    return true;
  }
  std::size_t o = 0, n = 0;
  while (n < dims.size()) {
    if (dims[n] == 1) {
      strides[n++] = 0;
      continue;
    }
    if (o == old_dims.size()) return false;
    std::int64_t have = old_dims[o], want = dims[n];
    const std::size_t first_old = o, first_new = n;
    while (have != want) {
      if (have < want) {
        if (++o == old_dims.size()) return false;
        have *= old_dims[o];
      } else {
        if (++n == dims.size()) return false;
        want *= dims[n];
      }
    }
    for (std::size_t i = first_old; i < o; ++i)
      if (old_strides[i] != old_strides[i + 1] * old_dims[i + 1]) return false;
    std::int64_t stride = old_strides[o];
    for (std::size_t i = n + 1; i-- > first_new;) {
      strides[i] = dims[i] == 1 ? 0 : stride;
      stride *= dims[i];
    }
    ++o;
    ++n;
  }
  view.dims = dims;
  view.strides = strides;
  return true;
}

void view_transpose(PlanView& view, const std::vector<std::int64_t>& perm) {
  PARE_ASSERT(perm.size() == view.dims.size());
  const PlanView old = view;
  for (std::size_t i = 0; i < perm.size(); ++i) {
    view.dims[i] = old.dims[static_cast<std::size_t>(perm[i])];
    view.strides[i] = old.strides[static_cast<std::size_t>(perm[i])];
  }
}

void view_slice(PlanView& view, int axis, std::int64_t start, std::int64_t count, std::int64_t step) {
  const auto a = static_cast<std::size_t>(axis);
  view.offset += start * view.strides[a];
  view.dims[a] = count;
  view.strides[a] *= step;
}

void view_expand(PlanView& view, const Dims& dims) {
  PARE_ASSERT(dims.size() >= view.dims.size());
  Dims strides(dims.size(), 0);
  const std::size_t shift = dims.size() - view.dims.size();
  for (std::size_t i = 0; i < view.dims.size(); ++i) {
    PARE_ASSERT(view.dims[i] == 1 || view.dims[i] == dims[i + shift]);
    strides[i + shift] = view.dims[i] == 1 ? 0 : view.strides[i];
  }
  view.dims = dims;
  view.strides = std::move(strides);
}

void view_select(PlanView& view, int axis, std::int64_t index) {
  const auto a = static_cast<std::ptrdiff_t>(axis);
  view.offset += index * view.strides[static_cast<std::size_t>(axis)];
  view.dims.erase(view.dims.begin() + a);
  view.strides.erase(view.strides.begin() + a);
}

}  // namespace pare
