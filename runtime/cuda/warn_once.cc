#include "runtime/cuda/warn_once.h"

#include <set>

#include "runtime/base/log.h"

namespace lockstep::cuda {

void warn_once(const std::string& what) {
  static std::set<std::string> logged;
  if (logged.insert(what).second) log_warn("{}", what);
}

}  // namespace lockstep::cuda
