import java.util.HashMap;
import java.util.Map;

/** What the command line says: {@code name=value} arguments. */
final class Settings {
    private final Map<String, String> values = new HashMap<>();

    Settings(String[] args) {
        for (String arg : args) {
            int at = arg.indexOf('=');
            if (at < 0) {
                throw new IllegalArgumentException("not name=value: " + arg);
            }
            values.put(arg.substring(0, at), arg.substring(at + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing: " + name + "=...");
        }
        return value;
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? Long.parseLong(values.get(name)) : otherwise;
    }
}
