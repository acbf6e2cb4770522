// Operators that pick elements by what they hold, so that the sizes of their outputs follow from the data.
//
//   NonZero   y[:, k] = the indices of element k of x that is not zero, in row-major order; NaN is not zero,
//             -0 is, a string is when it is empty. A scalar has no index: y is [0, 0 or 1].
//   Compress  the slices of x along `axis` (without it: the elements of x, flattened) whose condition is
//             true; a condition shorter than the axis says false for the rest, a true behind the end is Error
//             kBadFile
//   Unique    the distinct slices of x along `axis` (without it: elements, flattened), ascending, or by first
//             occurrence when `sorted` is 0. Slices are ordered by their elements, NaN last. All NaN are one
//             value, as are -0 and 0 (numpy.unique).
//             outputs: y; where each stands first; the place in y of each slice of x; how often each occurs
//
// Source: the ONNX operator specification, opset 25.
#pragma once

namespace pare {

class Registry;
void add_select_kernels(Registry& registry);

}  // namespace pare
