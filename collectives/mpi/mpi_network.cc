#include "collectives/mpi/mpi_network.h"

#include <mpi.h>

#include <array>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::collectives {
namespace {

// The part before the second '_' of every control variable that exists now: "btl_tcp" for
// btl_tcp_links and others.
std::set<std::string> components() {
  std::set<std::string> found;
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return found;
  int count = 0;
  MPI_T_cvar_get_num(&count);
  for (int i = 0; i < count; ++i) {
    std::array<char, 256> name{};
    int length = name.size(), verbosity = 0, binding = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    // Variables of components that were closed again return an error.
    if (MPI_T_cvar_get_info(i,
                            name.data(),
                            &length,
                            &verbosity,
                            &type,
                            nullptr,
                            nullptr,
                            nullptr,
                            &binding,
                            &scope) != MPI_SUCCESS)
      continue;
    const std::string_view variable = name.data();
    found.emplace(variable.substr(0, variable.find('_', variable.find('_') + 1)));
  }
  MPI_T_finalize();
  return found;
}

}  // namespace

// One "pml" moves the messages. The pml ob1 uses the "btl" components that found a network. The
// other pmls, ucx and cm, are chosen only if there is a network that they are made for.
MpiNetwork mpi_network() {
  bool tcp = false, fast = false, ob1 = false;
  for (const std::string& component : components()) {
    const std::string_view name = component;
    if (name.starts_with("pml_") && name != "pml_base") (name == "pml_ob1" ? ob1 : fast) = true;
    if (!name.starts_with("btl_") || name == "btl_base") continue;
    const bool local =
        name == "btl_self" || name == "btl_vader" || name == "btl_sm" || name == "btl_smcuda";
    if (!local) (name == "btl_tcp" ? tcp : fast) = true;
  }
  if (fast) return MpiNetwork::kOther;
  return ob1 && tcp ? MpiNetwork::kPlainTcp : MpiNetwork::kUnknown;
}

}  // namespace lockstep::collectives
