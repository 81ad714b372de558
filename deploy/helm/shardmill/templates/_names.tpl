{{- define "shardmill.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "shardmill.selector" -}}
app.kubernetes.io/name: shardmill
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* A label may have 63 letters, digits, -, _ and ., and ends with a letter or a digit. */ -}}
{{- define "shardmill.version" -}}
{{- $plain := regexReplaceAll "[^A-Za-z0-9._-]" .Chart.AppVersion "_" | trunc 63 -}}
{{- regexReplaceAll "^[^A-Za-z0-9]+|[^A-Za-z0-9]+$" $plain "" -}}
{{- end -}}

{{- define "shardmill.labels" -}}
{{ include "shardmill.selector" . }}
app.kubernetes.io/version: {{ include "shardmill.version" . | quote }}
{{- end -}}

{{- define "shardmill.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository .tag -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Cores as a number: what is set, or what the pod requests, as 500m or 2. */ -}}
{{- define "shardmill.cores" -}}
{{- $set := .Values.scaling.cores | toString -}}
{{- if $set -}}
{{- $set -}}
{{- else -}}
{{- $requests := .Values.resources.requests | default dict -}}
{{- $cpu := required "scaling.cores is needed if resources.requests.cpu is not set" $requests.cpu | toString -}}
{{- if hasSuffix "m" $cpu -}}
{{- divf (trimSuffix "m" $cpu | float64) 1000 -}}
{{- else -}}
{{- $cpu -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Names under which the admin pages may be asked for, as a list of the configuration. */ -}}
{{- define "shardmill.adminNames" -}}
{{- $names := .Values.admin.names | default list -}}
{{- if .Values.scaling.enabled -}}
{{- $service := printf "%s.%s" (include "shardmill.name" .) .Release.Namespace -}}
{{- $names = concat $names (list $service (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service)) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- /* The setting `plugins`: the folder, with what is pulled into it. */ -}}
{{- define "shardmill.plugins" -}}
{{- if .Values.plugins.sources -}}
{{- concat (list "/var/lib/shardmill/plugins") .Values.plugins.sources | toJson | quote -}}
{{- else if .Values.plugins.claim -}}
/plugins
{{- else -}}
/plugins/plugins
{{- end -}}
{{- end -}}
