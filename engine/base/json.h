// JSON, and the only place that knows how the JSON library must be called. Include it in .cpp files only
// (headers: json_fwd.h); the lint script refuses a bare dump() and any other include of the library.
//
// Why there are rules: by itself the library lets duplicate keys pass, prints NaN as null, throws its own
// exceptions at invalid UTF-8, and crashes when it prints very deeply nested values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/json_fwd.h"

namespace pare {

// Strict RFC 8259 (a UTF-8 byte order mark is skipped). `what` names the text in errors: the file's path.
// Errors, all kBadFile with where = "what:line:column" (from 1, column in bytes, where reading stopped):
// syntax, invalid UTF-8, numbers out of range, a key twice in one object, nesting deeper than
// limits::kMaxJsonDepth, anything after the value.
Json parse_json(std::string_view text, const std::string& what);
Json read_json_file(const std::string& path);  // at most limits::kMaxJsonBytes

// A number that may not be finite: NaN and the infinities become the strings "nan", "inf", "-inf".
Json json_number(double value);

// indent < 0: one line; else that many spaces a level. No newline at the end. Invalid UTF-8 becomes
// U+FFFD; a non-finite number that came in without json_number() is printed as json_number() has it.
std::string dump(const Json& value, int indent = -1);

// A member that must be there and have the type; kBadFile "WHAT: key 'x' is missing / is not a number".
// json_double also takes what json_number() makes of non-finite values.
const Json& json_member(const Json& object, const char* key, const std::string& what);
bool json_bool(const Json& object, const char* key, const std::string& what);
std::int64_t json_int(const Json& object, const char* key, const std::string& what);
double json_double(const Json& object, const char* key, const std::string& what);
std::string json_string(const Json& object, const char* key, const std::string& what);
const Json& json_array(const Json& object, const char* key, const std::string& what);
const Json& json_object(const Json& object, const char* key, const std::string& what);

}  // namespace pare
