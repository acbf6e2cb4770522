// Operators on strings (UTF-8).
//
//   StringConcat      a followed by b, broadcasting
//   StringSplit       at every `delimiter`; without one (or an empty one) at runs of white space, leading and
//                     trailing ones left out; at most `maxsplit` times, the last piece keeping the rest.
//                     Output 0 has one more axis, as long as the longest list, filled up with ""; output 1
//                     counts pieces
//   StringNormalizer  of [C] or [1, C]: stop words go, then
//                     upper or lower case (engine/base/unicode.h, without
//                     locales); one empty string where nothing is left
//   RegexFullMatch    whether the whole string matches `pattern` (regex.h)
//   TfIdfVectorizer   counts of n-grams of a pool, by lengths and gaps (tfidf_ref.cpp)
//   Cast              number to string: the shortest text that gives the number back, NaN, INF, -INF; bool
//   0, 1.
//                     String to number: what C's strtod takes, and nothing else around it (Error kBadFile);
//                     floating-point text for an integer type is cut towards zero
//
// What moves elements, and Equal, work on strings as on numbers (string_moves.cpp).
// Source: ONNX StringConcat-20, StringSplit-20, StringNormalizer-10, RegexFullMatch-20, TfIdfVectorizer-9,
// Cast-25.
#pragma once

namespace pare {

class Registry;
void add_string_references(Registry& registry);
void add_string_moves(Registry& registry);  // behind all kernels of the operators that it serves
void add_tfidf_reference(Registry& registry);

}  // namespace pare
