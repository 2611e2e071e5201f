# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Remote functions: calls, nesting, options, names, decorators, what the object knows of the function."""

import functools
import inspect
import os

import ray
from program import eventually, main, outcome, program, say


@ray.remote
def add(a, b=10, *rest, key=None):
    return (a, b, rest, key)


@ray.remote
def same(value):
    return value


@ray.remote
class Named:
    def name(self):
        return ray.get_runtime_context().get_task_function_name()

    async def later(self):
        return ray.get_runtime_context().get_task_function_name()


@program
def positional_and_keyword():
    say(ray.get(add.remote(1)))
    say(ray.get(add.remote(1, 2, 3, key="k")))
    outcome(add.remote)
    outcome(add.remote, 1, b=2, c=3)
    outcome(add, 1, words=["cannot be called directly"])


@program
def references_as_arguments():
    first = add.remote(1, 2)
    say(ray.get(add.remote(first, key=first)))
    nested = ray.get(add.remote([first]))
    say(type(nested[0][0]).__name__)


@program
def direct_calls_are_refused():
    outcome(same, 1, words=["Remote functions cannot be called directly", "same.remote()"])
    outcome(same.options(name="x"), 1)


@program
def nested_tasks():
    @ray.remote
    def fib(n):
        return n if n < 2 else sum(ray.get([fib.remote(n - 1), fib.remote(n - 2)]))

    say(ray.get(fib.remote(4)))


@program
def a_task_returns_references():
    @ray.remote
    def outer():
        return [same.remote(1), same.remote(2)]

    say(ray.get(ray.get(outer.remote())))

    @ray.remote
    def one():
        return same.remote(3)

    inner = ray.get(one.remote())
    say(type(inner).__name__, ray.get(inner))


@program
def a_remote_function_as_argument():
    @ray.remote
    def call(f, value):
        return ray.get(f.remote(value))

    say(ray.get(call.remote(same, 5)))
    say(ray.get(call.remote(ray.put(same), 6)))


@program
def closures_and_globals_are_taken_at_the_first_call():
    number = 1

    @ray.remote
    def read():
        return number

    say(ray.get(read.remote()))
    number = 2
    say(ray.get(read.remote()))


@program
def options_chain():
    both = same.options(name="first")
    say(ray.get(both.remote(1)))
    outcome(lambda: hasattr(both, "remote"))
    outcome(lambda: ray.get(same.options().remote(7)))


@program
def options_do_not_change_the_function():
    @ray.remote
    def pair():
        return 1, 2

    two = pair.options(num_returns=2)
    say(type(two.remote()).__name__, type(pair.remote()).__name__)
    say(ray.get(pair.remote()), ray.get(two.remote()))


@program
def names_of_tasks():
    @ray.remote
    def name():
        context = ray.get_runtime_context()
        return context.get_task_name()

    say(ray.get(name.remote()))
    say(ray.get(name.options(name="given").remote()))
    say(ray.get(same.options(name="").remote(1)))


@program
def function_names_of_tasks():
    @ray.remote
    def name():
        return ray.get_runtime_context().get_task_function_name()

    say(ray.get(name.remote()))
    say(ray.get(name.options(name="given").remote()))
    a = Named.remote()
    say(ray.get([a.name.remote(), a.later.remote(), a.name.options(name="given").remote()]))


@program
def the_title_of_the_process():
    @ray.remote
    def title():
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().rstrip(b"\0 ").decode()

    say(ray.get(title.remote()))
    say(ray.get(title.options(name="given").remote()))


@program
def attributes_of_the_function():
    @ray.remote
    def documented(a: int, b: str = "x") -> bool:
        """Says something."""
        return True

    say(type(documented).__name__)
    outcome(lambda: str(inspect.signature(documented.remote)))
    outcome(lambda: (documented.remote.__name__, documented.remote.__doc__))
    outcome(lambda: documented.remote.__wrapped__(1))
    outcome(lambda: documented._function.__name__)
    outcome(lambda: documented._function(1))
    outcome(lambda: documented._function_name)
    outcome(lambda: isinstance(documented, ray.remote_function.RemoteFunction))
    outcome(lambda: callable(documented))
    outcome(lambda: documented.nothing, words=["nothing"])


@program
def private_remote_with_options():
    @ray.remote
    def pair(a, b=2):
        return a, b

    outcome(lambda: ray.get(pair._remote(args=[1])))
    outcome(lambda: ray.get(pair._remote(args=(1,), kwargs={"b": 3}, num_returns=2)))
    outcome(lambda: ray.get(pair._remote((1,), {"b": 4}, num_cpus=2)))
    outcome(lambda: pair._remote(args=[]))


@program
def default_options_can_be_read():
    @ray.remote(num_cpus=2, max_retries=0)
    def f():
        pass

    outcome(lambda: sorted(f._default_options.items()))


@program
def what_can_be_remote():
    words = ["must be applied to either a function or a class"]
    outcome(ray.remote, 5, words=["The @ray.remote decorator must be applied"])
    outcome(ray.remote, same, words=words)
    outcome(ray.remote, words=["@ray.remote decorator"])
    outcome(ray.remote, 1, 2, words=["@ray.remote decorator"])
    outcome(ray.remote, len, num_cpus=1, words=["@ray.remote decorator"])


@program
def callable_objects():
    words = ["must be applied to either a function or a class"]
    outcome(ray.remote, functools.partial(print), words=words)
    outcome(ray.remote, print, words=words)


@program
def lambdas_and_static_functions():
    double = ray.remote(lambda x: 2 * x)
    say(ray.get(double.remote(4)))

    class Holder:
        @staticmethod
        def f(x):
            return x + 1

        def method(self, x):
            return x + 2

    say(ray.get(ray.remote(Holder.f).remote(1)))
    say(ray.get(ray.remote(Holder.method).remote(Holder(), 1)))


@program
def async_functions_are_refused():
    async def f():
        return 1

    outcome(ray.remote, f, words=["'async def' should not be used for remote tasks", "asyncio.run"])


@program
def decorated_functions():
    def twice(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return 2 * function(*args, **kwargs)

        return inner

    @ray.remote
    @twice
    def f(a, b=1):
        """Doc of f."""
        return a + b

    say(ray.get(f.remote(1, b=2)), f.remote.__name__, f.remote.__doc__)
    outcome(f.remote)
    outcome(lambda: ray.get(f.remote(1, 2, 3)))
    outcome(lambda: ray.get(f.remote(1, c=3)))


@program
def plain_wrappers_take_anything():
    def log(function):
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @ray.remote
    @log
    def f(a):
        return a

    say(ray.get(f.remote(1)))
    outcome(lambda: ray.get(f.remote()), words=["missing 1 required positional argument: 'a'"])
    outcome(lambda: ray.get(f.remote(b=2)), words=["unexpected keyword argument 'b'"])


@program
def a_process_ends_after_max_calls():
    @ray.remote(max_calls=1)
    def pid():
        return os.getpid()

    say(len({ray.get(pid.remote()) for _ in range(3)}))

    @ray.remote(max_calls=2)
    def other():
        return os.getpid()

    pids = [ray.get(other.remote()) for _ in range(4)]
    say(len(set(pids)) in (2, 3, 4))
    say(eventually(lambda: not os.path.exists(f"/proc/{pids[0]}")))


@program
def remote_functions_are_pickled():
    copy = ray.cloudpickle.loads(ray.cloudpickle.dumps(same))
    say(type(copy).__name__, ray.get(copy.remote(3)))
    outcome(lambda: ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(same)).remote(4)))


@program
def none_as_options():
    @ray.remote(num_cpus=None, name=None, resources=None, runtime_env=None)
    def f():
        return 1

    outcome(lambda: ray.get(f.remote()))
    outcome(lambda: ray.get(same.options(num_cpus=None, max_retries=0).remote(2)))
    outcome(lambda: ray.get(same.options(scheduling_strategy=None, num_returns=None).remote(2)))


@program
def a_task_that_no_node_can_run_waits():
    ref = same.options(num_cpus=100).remote(1)
    say(ray.wait([ref], timeout=0.3)[0])
    other = same.options(resources={"none of it": 1}).remote(1)
    outcome(ray.get, other, timeout=0.1)
    ray.cancel(ref)
    ray.cancel(other)
    outcome(ray.get, ref)


@program
def mutable_defaults_stay_with_the_process():
    @ray.remote
    def f(known=[]):  # noqa: B006
        known.append(1)
        return len(known) >= 1

    say(ray.get([f.remote() for _ in range(3)]))


@program
def recursion_of_the_function_by_its_name():
    @ray.remote
    def down(n):
        return [n, *ray.get(down.remote(n - 1))] if n else [0]

    say(ray.get(down.remote(3)))


if __name__ == "__main__":
    main()
