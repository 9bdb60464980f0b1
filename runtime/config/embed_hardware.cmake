# cmake -D FILES=... -D FOLDER=... -D OUTPUT=... -P embed_hardware.cmake: writes the texts of
# hardware files as a C++ file.
set(text "// Generated from configs/hardware/ during the build.
#include \"runtime/config/hardware.h\"

namespace lockstep::config {
namespace {

constexpr HardwareFile kFiles[] = {\n")
foreach(file IN LISTS FILES)
  file(READ ${FOLDER}/${file} content)
  string(APPEND text "    {\"configs/hardware/${file}\", R\"file(${content})file\"},\n")
endforeach()
string(APPEND text "};

}  // namespace

std::span<const HardwareFile> hardware_files() { return kFiles; }

}  // namespace lockstep::config\n")
file(WRITE ${OUTPUT} "${text}")
