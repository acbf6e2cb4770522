// The JSON reader: any bytes give a value or kBadFile; what it accepts is printed and read again as the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "tests/fuzz/blame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const pare::Json value = pare::parse_json({reinterpret_cast<const char*>(bytes), size}, "fuzz");
    const std::string text = pare::dump(value, 1);
    if (pare::dump(pare::parse_json(text, "again"), 1) != text) std::abort();
  } catch (const pare::Error& error) {
    pare::fuzz::expect_blames_input(error, {pare::ErrorCode::kBadFile});  // input must never look like a bug
  }
  return 0;
}
