#pragma once
// Tar files for tests.

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

inline std::string tar_header(const std::string& name,
                              size_t size,
                              char type = '0',
                              const std::string& prefix = "") {
  std::string header(512, '\0');
  header.replace(0, std::min<size_t>(name.size(), 100), name.substr(0, 100));
  char octal[13];
  std::snprintf(octal, sizeof(octal), "%011zo", size);
  header.replace(124, 11, octal);
  header[156] = type;
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(345, prefix.size(), prefix);
  unsigned sum = 8 * ' ';
  for (unsigned char c : header) sum += c;
  std::snprintf(octal, sizeof(octal), "%06o", sum);
  header.replace(148, 7, std::string(octal, 7));
  header[155] = ' ';
  return header;
}

inline std::string tar_member(const std::string& name,
                              const std::string& data,
                              char type = '0',
                              const std::string& prefix = "") {
  return tar_header(name, data.size(), type, prefix) + data +
         std::string((512 - data.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string tar;
  for (const auto& [name, data] : members) tar += tar_member(name, data);
  return tar + tar_end();
}

}  // namespace lockstep::test
